import type { ClusterEvent } from '../../shared/wire/cluster-events.js';
import { pauseBeforeAttempt, withEvent, withOpenConnection, type FeedConnection } from './dashboard-state.js';
import { updateDashboard } from './dashboard-store.js';

const EVENTS_URL = '/cluster/events';
const EVENT_TYPES = ['cluster', 'figures', 'recall', 'heat', 'pass'] as const satisfies readonly ClusterEvent['type'][];

/** Main sends data every second. Without this limit, browsers would notice only after minutes that main's machine is gone. */
const SILENCE_LIMIT_MS = 10_000;

let attempts = 0;
let source: EventSource | null = null;
let retry: number | undefined;
let silence: number | undefined;

function setConnection(connection: FeedConnection): void {
  updateDashboard((state) => ({ ...state, connection }));
}

function expectEvent(): void {
  window.clearTimeout(silence);
  silence = window.setTimeout(() => void failed(), SILENCE_LIMIT_MS);
}

function take(message: MessageEvent<string>): void {
  expectEvent();
  // The event needs no validation: the page comes from main, so both have the same version.
  const event = JSON.parse(message.data) as ClusterEvent;
  updateDashboard((state) => withEvent(state, event));
}

/** Tells whether main needs a key. A browser does not report the HTTP status of an event source, so this sends a separate request. */
async function isLocked(): Promise<boolean> {
  const stop = new AbortController();
  const limit = window.setTimeout(() => stop.abort(), SILENCE_LIMIT_MS);
  try {
    const { status } = await fetch(EVENTS_URL, { headers: { accept: 'text/event-stream' }, signal: stop.signal });
    return status === 401;
  } catch {
    return false;
  } finally {
    window.clearTimeout(limit);
    stop.abort();
  }
}

async function failed(): Promise<void> {
  window.clearTimeout(silence);
  source?.close();
  source = null;
  if (await isLocked()) return setConnection('locked');
  setConnection('lost');
  attempts += 1;
  retry = window.setTimeout(startFeed, pauseBeforeAttempt(attempts));
}

/** Listens to main. After a lost connection, it tries again with growing pauses. A call also tries again at once. */
export function startFeed(): void {
  window.clearTimeout(retry);
  source?.close();
  source = new EventSource(EVENTS_URL);
  expectEvent();
  source.onopen = () => {
    attempts = 0;
    updateDashboard(withOpenConnection);
  };
  source.onerror = () => void failed();
  for (const type of EVENT_TYPES) source.addEventListener(type, take);
}
