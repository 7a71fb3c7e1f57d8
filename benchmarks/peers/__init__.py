"""The comparison with other programs: what benchmarks/peers.py and benchmarks/results.py are made of.

catalogue.py      the rivals, their packages and the settings that are tried
environment.py    .venv-peers, made once
shared_data.py    one tf-idf matrix, one set of labels, one list of texts for all; validation rows
cuts.py           small datasets, cut from large ones
runner.py         train, predict, measure: the same for every rival, in a process of its own
pecos.py, omikuji_trees.py, napkinxc_plt.py, one_versus_rest.py, nearest.py, bm25.py, words.py      one adapter each
rescored.py       a score model on top of a peer's candidates
rivals.py         a rival's settings chosen on validation rows, then all of the above
our_model.py      a model of ours, trained and measured in the same way
comparison.py     metrics, intervals and verdicts, from saved predictions
cells.py          one system on one dataset, kept as a JSON file
in_turn.py        single texts of several systems in turn
"""
