"""Parts of a scene: each file has one idea, with its parameters and checks, its arrays and its kernels."""
