"""The golden cases: each module lists its own in CASES; the folder of a case is its op."""
from cases import adamw, attention, attn_res, basic, kda, models, moe, quantile_balance

MODULES = (basic, kda, attention, moe, attn_res, adamw, quantile_balance, models)
