"""The demo: a company at work for sixty days, made through the service, the same every time."""

from memtui.demo.build import build_demo
from memtui.demo.home import DemoSummary, demo_paths

__all__ = ["DemoSummary", "build_demo", "demo_paths"]
