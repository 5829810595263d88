"""The demo: a company at work for sixty days, the same every time."""

from memtui.demo.making import COMPANY, DemoSummary, build_demo, can_open, demo_paths, is_begun

__all__ = ["COMPANY", "DemoSummary", "build_demo", "can_open", "demo_paths", "is_begun"]
