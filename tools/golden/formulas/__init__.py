"""The mathematics of the model as JAX functions in float64: the independent definition behind the golden files.

Written from the published formulas, for being read rather than for speed. Nothing here is shared with the C++ code.
Every function is pure; gradients come from JAX's autodiff. Shapes stand in the docstrings with the project's axis
words: tokens, hidden, heads, head_dim, experts, top_k. Importing the package switches JAX to float64 on the CPU.
"""
import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")
