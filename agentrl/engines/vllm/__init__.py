"""The vLLM engine: samples from vLLM servers, which are other processes, over HTTP."""
