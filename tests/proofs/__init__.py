"""A model of watermarks, and an explorer that compares the code of the runtime with it in every reachable state.

``docs/watermark-proofs.md`` describes what is proven, and with which bounds.
"""
