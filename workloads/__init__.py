"""Real models as workloads: one module a family, found through the entry-point group `addrfrac.workloads`.

A workload is a `addrfrac.records.Workload` whose `build(configuration, device)` returns a `Step` (see `step.py`), or
simply a callable without arguments that runs one step. Your own model needs no more than this, in `mine.py`:

    import torch
    from addrfrac.records import Workload

    def build(configuration, device):
        model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8)).to(device)
        batch = torch.randn(configuration.batch, 64, device=device)
        return lambda: model(batch)

    MLP = Workload(name="mlp", about="two layers", build=build, defaults={"batch": 32}, modes=("infer",))

and then `addrfrac profile mine.py:MLP`. Modules here import torch inside their functions only, so that listing
workloads needs no torch. `build` of a built-in workload also takes `tiny=True`: the same architecture at toy width,
for tests.
"""
