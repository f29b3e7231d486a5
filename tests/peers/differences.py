"""Figures of floating point, computed on one CPU and stored from another."""


def differences(new, stored, where="", share=1e-5, in_bfloat16=0.05, scale=0.1):
    """Where figures are other than stored, by more than CPUs round differently: a sentence each.

    Logits are sums, rounded by the size of what is added, which their root mean square tells; in
    bfloat16 CPUs round at different places as well."""
    if isinstance(stored, dict):
        if stored.get("dtype") == "bfloat16":
            share = in_bfloat16
        scale = max(scale, stored.get("rms") or 0)
        if not isinstance(new, dict) or new.keys() != stored.keys():
            return [where + ": other keys"]
        return [line for key in stored
                for line in differences(new[key], stored[key], f"{where}.{key}", share, in_bfloat16,
                                         scale)]
    if isinstance(stored, list):
        if not isinstance(new, list) or len(new) != len(stored):
            return [where + ": another length"]
        return [line for i, pair in enumerate(zip(new, stored))
                for line in differences(*pair, f"{where}[{i}]", share, in_bfloat16, scale)]
    if isinstance(stored, float) and isinstance(new, float):
        near = abs(new - stored) <= share * (scale + abs(stored))
        return [] if near else [f"{where}: {stored}, now {new}"]
    return [] if new == stored else [f"{where}: {stored}, now {new}"]
