"""The implementations that are compared: ours through ctypes, NVIDIA's cuDNN frontend, and flash-linear-attention.

Each has `forms`, the forms of inputs that it takes, and for a form: `inputs(form)`, the names of the inputs it reads;
`forward(x, form, final_state)`, a call that computes outputs (and final states); `both(x, form)`, one that also computes all
gradients. Both return (call, result): `call()` enqueues the work, `result()` gives outputs, state and gradients of the last call.
"""
import ctypes

import torch

from inputs import BOUND, GIVEN, HEAD_DIM, RAW, SCALE


class Ours:
    """The shared library of entry.cu. The memory that a call needs is allocated before it, as the trainer does."""
    name = "ours"
    forms = {"raw": ("forward",), "given": ("forward", "both"), "given unbounded": ("forward", "both")}
    Q_TO_CU = ("q", "k", "v", "gate", "beta_logits", "g", "beta", "a_log", "dt_bias", "cu_seqlens")
    STATE_TO_STREAM = ("initial_state", "o", "final_state", "saved", "workspace", "d_o", "dfinal_state", "dq", "dk", "dv", "dg",
                       "dbeta", "dinitial_state", "stream")

    class Call(ctypes.Structure):
        pass

    Call._fields_ = ([(n, ctypes.c_int64) for n in ("tokens", "heads", "head_dim", "documents", "unbounded", "save_images")]
                     + [(n, ctypes.c_void_p) for n in Q_TO_CU] + [("gate_bound", ctypes.c_double), ("scale", ctypes.c_double)]
                     + [(n, ctypes.c_void_p) for n in STATE_TO_STREAM])

    def __init__(self, path, save_images=False):
        self.library, self.save_images = ctypes.CDLL(path), save_images

    def inputs(self, form):
        return RAW if form == "raw" else GIVEN

    def run(self, function, call):
        error = getattr(self.library, function)(ctypes.byref(call))
        if error:
            raise RuntimeError(f"{function} returned CUDA error {error}")

    def forward(self, x, form, final_state=False):
        call, kept = self.arguments(x, form, final_state, training=False)
        return lambda: self.run("lh_kda_forward", call), lambda: [kept["o"], kept.get("final_state")]

    def both(self, x, form, final_state=False):
        call, kept = self.arguments(x, form, final_state, training=True)

        def run():
            self.run("lh_kda_forward", call)
            self.run("lh_kda_backward", call)
        return run, lambda: [kept.get(n) for n in ("o", "final_state", "dq", "dk", "dv", "dg", "dbeta")]

    def arguments(self, x, form, final_state, training):
        call = self.Call(tokens=x.tokens, heads=x.heads, head_dim=HEAD_DIM, documents=len(x.lengths), gate_bound=BOUND, scale=SCALE,
                         unbounded=form == "given unbounded", save_images=training and self.save_images)
        sizes = (ctypes.c_int64 * 3)()
        self.library.lh_kda_bytes(ctypes.byref(call), sizes)
        forward_workspace, backward_workspace, saved = sizes

        def new(shape, dtype=torch.float32):
            return torch.empty(shape, dtype=dtype, device="cuda")
        names = dict(zip(("q", "k", "v", "g", "beta"), GIVEN)) if form != "raw" else {n: n for n in (*RAW, "a_log", "dt_bias")}
        kept = {name: getattr(x, of) for name, of in names.items()} | {"cu_seqlens": x.cu_seqlens, "o": torch.empty_like(x.v)}
        workspace = forward_workspace
        if final_state:
            kept["final_state"] = new((len(x.lengths), x.heads, HEAD_DIM, HEAD_DIM))
        if training:
            workspace = max(workspace, backward_workspace)
            kept |= {"saved": new(saved, torch.uint8), "d_o": x.d_o, "dbeta": new(x.beta_logits.shape)}
            kept |= {name: new(x.q.shape) for name in ("dq", "dk", "dv", "dg")}
        kept["workspace"] = new(workspace + 1024, torch.uint8)
        for name, tensor in kept.items():
            setattr(call, name, tensor.data_ptr())
        call.workspace = (call.workspace + 1023) // 1024 * 1024
        call.stream = torch.cuda.current_stream().cuda_stream
        return call, kept


class CuDnn:
    """nvidia-cudnn-frontend, engine kda_hopper_cuda. Its backward takes prepared inputs only and computes forward's intermediate
    results again."""
    name = "cudnn"
    forms = {"raw": ("forward",), "given": ("forward", "both")}
    PLAN = {"plan_name": "kda_hopper_cuda"}

    def __init__(self):
        from cudnn.linear_attention.ops import kimi_delta_attention
        self.op = kimi_delta_attention

    def inputs(self, form):
        return RAW if form == "raw" else GIVEN

    def forward(self, x, form, final_state=False):
        more = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "safe_gate": True, "gate_lower_bound": BOUND,
                "a_log": x.a_log, "dt_bias": x.dt_bias} if form == "raw" else {}
        got = []

        def run():
            with torch.no_grad():
                got[:] = self.op(*(getattr(x, n) for n in self.inputs(form)), x.cu_seqlens_32, scale=SCALE,
                                 output_final_state=final_state, **self.PLAN, **more)
        return run, lambda: [got[0], got[1].transpose(-1, -2) if final_state else None]

    def both(self, x, form, final_state=False):
        forward, outputs = self.forward(x, form, final_state)
        got = []

        def run():
            forward()
            with torch.no_grad():
                got[:] = torch.ops.cudnn.kimi_delta_attention_bwd(x.d_o, *(getattr(x, n) for n in GIVEN), x.cu_seqlens_32, SCALE,
                                                                  **self.PLAN)
        return run, lambda: [*outputs(), *got[:5]]


class Fla:
    """flash-linear-attention's chunk_kda with all of norm, gate and sigmoid in its kernels."""
    name = "fla"
    forms = {"raw": ("forward", "both"), "raw unbounded": ("forward", "both")}

    def __init__(self):
        from fla.ops.kda import chunk_kda
        self.op = chunk_kda

    def inputs(self, form):
        return RAW

    def leaves(self, x, grad):
        wide = [getattr(x, n).detach().unsqueeze(0).requires_grad_(grad) for n in RAW]
        return [*wide, x.a_log.detach().requires_grad_(grad), x.dt_bias.detach().flatten().requires_grad_(grad)]

    def apply(self, x, leaves, form, final_state):
        *wide, a_log, dt_bias = leaves
        more = {"safe_gate": True, "lower_bound": BOUND} if form == "raw" else {}
        if len(x.lengths) > 1:
            more["cu_seqlens"] = x.cu_seqlens
        return self.op(*wide, scale=SCALE, output_final_state=final_state, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
                       use_beta_sigmoid_in_kernel=True, A_log=a_log, dt_bias=dt_bias, **more)

    def forward(self, x, form, final_state=False):
        leaves, got = self.leaves(x, False), []

        def run():
            with torch.no_grad():
                got[:] = self.apply(x, leaves, form, final_state)
        return run, lambda: got

    def both(self, x, form, final_state=False):
        leaves, got = self.leaves(x, True), []

        def run():
            got.clear()  # before the next outputs, so that they are not held twice
            o, state = self.apply(x, leaves, form, final_state)
            got[:] = [o.detach(), None if state is None else state.detach(), *torch.autograd.grad(o, leaves, x.d_o.unsqueeze(0))]
        return run, lambda: got[:7]
