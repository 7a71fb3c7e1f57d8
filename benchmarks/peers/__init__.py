"""The comparison with other programs: what benchmarks/peers.py is made of.

catalogue.py      the peers, their packages and settings
environment.py    .venv-peers, made once
shared_data.py    one tf-idf matrix, one set of labels, one list of test texts for all
runner.py         train, predict, measure: the same for every peer, in a process of its own
pecos.py, omikuji_trees.py, napkinxc_plt.py, our_model.py      one adapter each
comparison.py     metrics, intervals and verdicts, from saved predictions
"""
