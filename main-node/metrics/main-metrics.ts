import { Registry } from 'prom-client';
import type { RequestObserver } from '../rpc/request-observer.js';
import { ClusterMetrics, type ClusterFigures } from './cluster-metrics.js';
import { RequestMetrics } from './request-metrics.js';

/** All that main tells Prometheus, in a registry of its own. docs/metrics.md names every metric. */
export class MainMetrics {
  /** Is to be told of requests. */
  readonly requests: RequestObserver;
  private readonly registry = new Registry();
  private readonly cluster: ClusterMetrics;

  constructor() {
    this.requests = new RequestMetrics(this.registry);
    this.cluster = new ClusterMetrics(this.registry);
  }

  get contentType(): string {
    return this.registry.contentType;
  }

  /** Prometheus' text format, of this moment. */
  text(figures: ClusterFigures): Promise<string> {
    this.cluster.take(figures);
    return this.registry.metrics();
  }
}
