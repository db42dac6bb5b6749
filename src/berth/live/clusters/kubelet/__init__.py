"""The kubelet of a local Kubernetes cluster: one program that stands for all nodes.

It registers nodes, sends their heartbeats, and runs the containers of their pods as processes of this machine.
`python -m berth.live.clusters.kubelet --help` lists its options.
"""
