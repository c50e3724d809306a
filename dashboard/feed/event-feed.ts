import type { ClusterEvent } from '../../shared/cluster-events/cluster-events.js';
import { pauseBeforeAttempt, withEvent, withOpenConnection, type Connection } from './dashboard-state.js';
import { updateDashboard } from './dashboard-store.js';

const EVENTS_URL = '/cluster/events';
const EVENT_TYPES = ['cluster', 'figures', 'recall', 'heat', 'pass'] as const satisfies readonly ClusterEvent['type'][];

let attempts = 0;
let source: EventSource | null = null;
let retry: number | undefined;

function setConnection(connection: Connection): void {
  updateDashboard((state) => ({ ...state, connection }));
}

function take(message: MessageEvent<string>): void {
  // Main's own words, of its own release: the page comes from it.
  const event = JSON.parse(message.data) as ClusterEvent;
  updateDashboard((state) => withEvent(state, event));
}

/** The browser does not tell an event source's status: one request asks for it. */
async function isLocked(): Promise<boolean> {
  const stop = new AbortController();
  try {
    const { status } = await fetch(EVENTS_URL, { headers: { accept: 'text/event-stream' }, signal: stop.signal });
    return status === 401;
  } catch {
    return false;
  } finally {
    stop.abort();
  }
}

async function failed(): Promise<void> {
  source?.close();
  source = null;
  if (await isLocked()) return setConnection('locked');
  setConnection('lost');
  attempts += 1;
  retry = window.setTimeout(startFeed, pauseBeforeAttempt(attempts));
}

/** Listens to main; asks again, after growing pauses, when the connection is lost. Also the way to ask at once. */
export function startFeed(): void {
  window.clearTimeout(retry);
  source?.close();
  source = new EventSource(EVENTS_URL);
  source.onopen = () => {
    attempts = 0;
    updateDashboard(withOpenConnection);
  };
  source.onerror = () => void failed();
  for (const type of EVENT_TYPES) source.addEventListener(type, take);
}
