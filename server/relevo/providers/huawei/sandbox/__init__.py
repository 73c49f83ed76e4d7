"""Huawei Push Kit in the sandbox: its tokens and answers, and the service itself."""
