"""A share partition live on the leader of its data partition: who holds which records, and what came of each
(KIP-932).
"""
