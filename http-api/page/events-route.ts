import type { ClusterEvent } from '../../shared/wire/cluster-events.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Dialect } from '../delivery/dialect.js';
import type { EventListener, RegisterRoutes } from '../door-context.js';
import { openAiErrorBody } from '../errors/error-answer.js';
import { onAbort } from '../../shared/base/runtime/living.js';

/** Errors have OpenAI's form, as all that belongs to no dialect of clients. */
const EVENTS: Dialect = {
  streamType: 'text/event-stream; charset=utf-8',
  errorBody: openAiErrorBody,
  keepAlive: () => ': keep-alive\n\n',
  errorEvent: (error) => `event: error\ndata: ${JSON.stringify(openAiErrorBody(error))}\n\n`,
};

/** GET /cluster/events: what happens in the cluster, until the client goes or main stops. `passes=off` leaves passes out; `on` is what holds without it. */
export const registerEvents: RegisterRoutes = (app, { feed, deliverStream }) => {
  app.get<{ Querystring: { passes?: unknown } }>('/cluster/events', (request, reply) => {
    const withPasses = wantsPasses(request.query.passes);
    // A question whether the stream is there gets headers alone.
    if (request.method === 'HEAD') return reply.type(EVENTS.streamType).send();
    const queue = feed.listen(withPasses);
    return deliverStream(request, reply, EVENTS, (signal) => piecesOf(queue, signal));
  });
};

function wantsPasses(passes: unknown): boolean {
  if (passes === undefined || passes === 'on') return true;
  if (passes === 'off') return false;
  throw new OdmoeError('REQUEST_INVALID', 'passes is on or off', { field: 'passes' });
}

async function* piecesOf(queue: EventListener, signal: AbortSignal): AsyncGenerator<string, void, undefined> {
  const leave = (): void => queue.end();
  const stopListening = onAbort(signal, leave);
  if (signal.aborted) leave();
  try {
    for (let event = await queue.next(); event !== null; event = await queue.next()) yield textOf(event);
  } finally {
    stopListening();
    leave();
  }
}

/** Listeners share events, and their texts. */
const texts = new WeakMap<ClusterEvent, string>();

function textOf(event: ClusterEvent): string {
  const known = texts.get(event);
  if (known !== undefined) return known;
  const text = `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
  texts.set(event, text);
  return text;
}
