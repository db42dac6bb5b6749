"""Kubernetes: nodes, pods and gangs as a cluster's API describes them, and where a gang would go.

Reading only: `cluster` holds nodes and pods, `client` reads them from a live cluster, `manifests` reads jobs from
files, `plan` and `explain` answer. `changes` finds the smallest change that lets a gang start.
"""
