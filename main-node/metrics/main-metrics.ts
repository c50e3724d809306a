import { Counter, Registry } from 'prom-client';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { RequestObserver } from '../rpc/request-observer.js';
import { ClusterMetrics, type ClusterFigures } from './cluster-metrics.js';
import { RequestMetrics } from './request-metrics.js';

/** All of main's metrics for Prometheus, in their own registry. docs/metrics.md names every metric. */
export class MainMetrics {
  /** Observer that must be notified of requests. */
  readonly requests: RequestObserver;
  private readonly registry = new Registry();
  private readonly cluster: ClusterMetrics;
  private readonly httpRequests: Counter<'route' | 'code'>;

  constructor() {
    this.httpRequests = new Counter({
      name: 'odmoe_http_requests_total',
      help: 'HTTP requests that have ended, by the route that served them ("none": no one) and "ok" or the code of their error.',
      labelNames: ['route', 'code'],
      registers: [this.registry],
    });
    this.requests = new RequestMetrics(this.registry);
    this.cluster = new ClusterMetrics(this.registry);
  }

  get contentType(): string {
    return this.registry.contentType;
  }

  /** `route`: as it is registered, so that clients cannot make up new values. */
  httpRequestEnded(route: string, code: 'ok' | ErrorCode): void {
    this.httpRequests.inc({ route, code });
  }

  /** The present metrics in Prometheus' text format. */
  text(figures: ClusterFigures): Promise<string> {
    this.cluster.take(figures);
    return this.registry.metrics();
  }
}
