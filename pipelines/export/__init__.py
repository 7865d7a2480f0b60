"""What an index holds, in files and engines of others: the same rows everywhere, and all that is needed to ask them.

Store -> About, batches of rows -> a target
"""
