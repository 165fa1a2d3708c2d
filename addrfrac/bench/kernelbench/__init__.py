"""Published kernels judged: problems and solutions in KernelBench's format in, one record an evaluation out.

- `problems` and `solutions` find texts in a checkout, a folder or a JSON file; nothing is imported.
- `evaluate` judges one pair under the protocols asked for; `device_turn` keeps measuring apart from everything else.
- `workers` spreads pairs over processes and GPUs of this machine, `cluster` over machines; `run` is the whole command.
- `records` is what all of it exchanges and what the analysis reads.
"""
