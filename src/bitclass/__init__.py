"""Classification with very many classes."""
