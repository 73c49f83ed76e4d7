"""Huawei Push Kit."""
