"""Charts as lines of text and as pictures. Pure: numbers in, lines out; no terminal, no sockets.

A figure that is None, NaN or infinite is not available: it is a gap, never a 0.
"""
