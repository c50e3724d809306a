import type { RegisterRoutes } from './door-context.js';

/** GET /metrics, for Prometheus. */
export const registerMetrics: RegisterRoutes = (app, { metrics }) => {
  app.get('/metrics', { config: { polled: true } }, async (_request, reply) =>
    reply.type(metrics.contentType).send(await metrics.text()),
  );
};
