"""Train agents for directional sensor coverage in a checkout: ``hitmac train``, whose steps are in hitmac/train.py."""

from hitmac.train import main

if __name__ == "__main__":
    main()
