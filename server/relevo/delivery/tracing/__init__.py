"""Spans of traced events: fan-out, dispatch, push requests and receipts, in the trace of the app that enqueued them."""
