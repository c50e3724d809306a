import type { ClusterEvent } from '../../shared/wire/cluster-events.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Dialect } from '../delivery/dialect.js';
import type { EventListener, RegisterRoutes } from '../http-api-context.js';
import { openAiErrorBody } from '../errors/error-answer.js';
import { onAbort } from '../../shared/base/runtime/living.js';

/** Errors have OpenAI's form, as on all routes that belong to no dialect. */
const EVENTS: Dialect = {
  streamType: 'text/event-stream; charset=utf-8',
  errorBody: openAiErrorBody,
  keepAlive: () => ': keep-alive\n\n',
  errorEvent: (error) => `event: error\ndata: ${JSON.stringify(openAiErrorBody(error))}\n\n`,
};

/** GET /cluster/events: the events of the cluster, until the client or main ends. `passes=off` omits passes; `on` is the default. */
export const registerEvents: RegisterRoutes = (app, { feed, deliverStream }) => {
  app.get<{ Querystring: { passes?: unknown } }>('/cluster/events', (request, reply) => {
    const withPasses = wantsPasses(request.query.passes);
    // A HEAD request, which only asks whether the stream exists, gets the headers alone.
    if (request.method === 'HEAD') return reply.type(EVENTS.streamType).send();
    const queue = feed.listen(withPasses);
    return deliverStream(request, reply, EVENTS, (signal) => eventTexts(queue, signal));
  });
};

function wantsPasses(passes: unknown): boolean {
  if (passes === undefined || passes === 'on') return true;
  if (passes === 'off') return false;
  throw new OdmoeError('REQUEST_INVALID', 'passes is on or off', { field: 'passes' });
}

async function* eventTexts(queue: EventListener, signal: AbortSignal): AsyncGenerator<string, void, undefined> {
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

/** All listeners share the events and the texts of events. */
const texts = new WeakMap<ClusterEvent, string>();

function textOf(event: ClusterEvent): string {
  const known = texts.get(event);
  if (known !== undefined) return known;
  const text = `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
  texts.set(event, text);
  return text;
}
