"""Inputs of a comparison, raw and prepared, and the recurrence in double that all are checked against."""
import torch

HEAD_DIM = 128
SCALE = HEAD_DIM ** -0.5
BOUND = -5.0
NORM_EPSILON = 1e-6
SHAPES = {
    "8192 x 96": ([8192], 96),
    "8192 x 64": ([8192], 64),
    "8192 x 16": ([8192], 16),
    "65536 x 32": ([65536], 32),
    "262144 x 16": ([262144], 16),
    "1048576 x 8": ([1048576], 8),
    "packed 6 x 96": ([1300, 547, 2048, 963, 271, 3063], 96),
    "packed 8 x 1024 x 96": ([1024] * 8, 96),
}
# strong: all channels forget, log-decay about -2.5 a token. slow: every sixteenth channel remembers, about -0.002 a token.
GATES = ("strong", "slow")
GIVEN = ("unit_q", "unit_k", "v", "g", "beta")
RAW = ("q", "k", "v", "gate", "beta_logits")


class Inputs:
    """q, k, v, d_o and gate: bf16 [tokens, heads, head_dim]; beta_logits: bf16 [tokens, heads]; a_log [heads] and dt_bias
    [heads, head_dim]: float. After `prepare`: unit_q and unit_k in bf16, g and beta in float."""

    def __init__(self, lengths, heads, gates="strong", seed=1):
        generator = torch.Generator("cuda").manual_seed(seed)
        self.lengths, self.heads, self.tokens = lengths, heads, sum(lengths)

        def normal(*shape, scale=1.0, dtype=torch.bfloat16):
            out = torch.empty(shape, dtype=dtype, device="cuda")
            for rows in out.split(65536):
                rows.copy_(scale * torch.randn(rows.shape, generator=generator, device="cuda"))
            return out

        shape = (self.tokens, heads, HEAD_DIM)
        self.q, self.k, self.v, self.d_o = (normal(*shape) for _ in range(4))
        self.gate = normal(*shape, scale=1.5)
        self.beta_logits = normal(self.tokens, heads, scale=1.5)
        self.a_log = normal(heads, scale=0.3, dtype=torch.float32)
        self.dt_bias = normal(heads, HEAD_DIM, scale=0.5, dtype=torch.float32)
        if gates == "slow":
            self.gate[..., ::16] *= 0.25
            self.dt_bias[:, ::16] = -8 * torch.exp(-self.a_log)[:, None]
        bounds = torch.tensor([0] + lengths).cumsum(0)
        self.cu_seqlens, self.cu_seqlens_32 = bounds.cuda(), bounds.int().cuda()

    def prepare(self, unbounded=False):
        """g is bounded, or with softplus."""
        self.unit_q, self.unit_k = torch.empty_like(self.q), torch.empty_like(self.k)
        self.g = torch.empty(self.q.shape, dtype=torch.float32, device="cuda")
        for rows in torch.arange(self.tokens, device="cuda").split(65536):
            part = slice(int(rows[0]), int(rows[-1]) + 1)
            for raw, unit in ((self.q, self.unit_q), (self.k, self.unit_k)):
                x = raw[part].float()
                unit[part] = x * torch.rsqrt((x * x).sum(-1, keepdim=True) + NORM_EPSILON)
            self.g[part] = (log_decay_unbounded if unbounded else log_decay)(self.gate[part].float(), self.a_log, self.dt_bias)
        self.beta = torch.sigmoid(self.beta_logits.float())

    def size_of(self, names):
        return sum(getattr(self, n).nbytes for n in names)


def log_decay(gate, a_log, dt_bias):
    return BOUND * torch.sigmoid(a_log.exp()[:, None] * (gate + dt_bias))


def log_decay_unbounded(gate, a_log, dt_bias):
    return -a_log.exp()[:, None] * torch.nn.functional.softplus(gate + dt_bias)


def reference(x, raw):
    """Token by token in double (Kimi Linear, arXiv:2510.26692, eq. 1): outputs, final states, gradients of the five inputs."""
    leaves = [getattr(x, n).double().requires_grad_() for n in (RAW if raw else GIVEN)]
    q, k, v, g, beta = leaves
    if raw:
        q, k = (t * torch.rsqrt((t * t).sum(-1, keepdim=True) + NORM_EPSILON) for t in (q, k))
        g, beta = log_decay(g, x.a_log.double(), x.dt_bias.double()), torch.sigmoid(beta)
    decay, rows, states, first = g.exp(), [], [], 0
    for length in x.lengths:
        state = torch.zeros(x.heads, HEAD_DIM, HEAD_DIM, dtype=torch.float64, device="cuda")
        for t in range(first, first + length):
            state = state * decay[t][:, :, None]
            wrong = v[t] - torch.einsum("hkv,hk->hv", state, k[t])
            state = state + torch.einsum("hk,hv->hkv", beta[t][:, None] * k[t], wrong)
            rows.append(SCALE * torch.einsum("hkv,hk->hv", state, q[t]))
        first += length
        states.append(state)
    o = torch.stack(rows)
    return [o.detach(), torch.stack(states).detach(), *torch.autograd.grad(o, leaves, x.d_o.double())]


def relative_errors(got, expected):
    """Relative RMS errors by name; None in `got` is left out."""
    names = ("o", "state", "dq", "dk", "dv", "dg", "dbeta")
    return {n: float((a.double().reshape(b.shape) - b).norm() / b.norm()) for n, a, b in zip(names, got, expected) if a is not None}
