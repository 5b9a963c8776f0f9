package main

// meshBenchmarks need a whole mesh: weftd with all its services, a tenant, and a template.
var meshBenchmarks = []Benchmark{}

// serviceBenchmarks need one service's own parts.
var serviceBenchmarks = []Benchmark{}
