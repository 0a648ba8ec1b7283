"""Classification with very many classes."""

from bitclass._native import set_num_threads, show_config

__all__ = ["set_num_threads", "show_config"]
