"""A live share partition on the leader of its data partition: which member has which records, and their outcome
(KIP-932).
"""
