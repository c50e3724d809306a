import type { FastifyInstance } from 'fastify';
import { OdmoeError } from '../shared/base/errors/odmoe-error.js';
import type { StatusReply } from '../shared/wire/messages.js';
import { sendError } from './delivery/send-error.js';
import type { DoorContext } from './door-context.js';

/** GET /health, open to all. `trouble`: why main itself serves nobody; null: it does. */
export function registerHealth(app: FastifyInstance, context: DoorContext, trouble: () => OdmoeError | null): void {
  app.get('/health', { config: { open: true, polled: true } }, (_request, reply) => {
    const error = trouble() ?? clusterTrouble(context.status());
    return error === null ? reply.send({ status: 'ok' }) : sendError(reply, error);
  });
}

/** Why the cluster can answer nobody; null: it can. */
function clusterTrouble({ placement }: StatusReply): OdmoeError | null {
  if (placement !== null && placement.workers.length > 0) return null;
  return new OdmoeError(
    'NO_WORKERS',
    'no worker is connected to main: start one ("odmoe worker"), or see "odmoe status"',
  );
}
