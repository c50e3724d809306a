import type { ClusterEvent } from '../../shared/wire/cluster-events.js';
import { pauseBeforeAttempt, withEvent, withOpenConnection, withSilence } from './dashboard-state.js';
import { updateDashboard } from './dashboard-store.js';

const EVENTS_URL = '/cluster/events';
const EVENT_TYPES = ['cluster', 'figures', 'recall', 'heat', 'pass'] as const satisfies readonly ClusterEvent['type'][];

/**
 * Main sends data every second. Without this limit, browsers would notice only after minutes that main's machine is gone, and never that its process
 * is stopped.
 */
const SILENCE_LIMIT_MS = 5000;

let attempts = 0;
let source: EventSource | null = null;
let retry: number | undefined;
let silence: number | undefined;
/** On the browser's clock; null: main has told nothing yet. */
let lastEventMs: number | null = null;

function expectEvent(): void {
  window.clearTimeout(silence);
  silence = window.setTimeout(tryLater, SILENCE_LIMIT_MS);
}

function take(message: MessageEvent<string>): void {
  expectEvent();
  lastEventMs = Date.now();
  attempts = 0;
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

function stopListening(): void {
  window.clearTimeout(silence);
  window.clearTimeout(retry);
  source?.close();
  source = null;
}

function showSilence(): void {
  updateDashboard((state) => withSilence(state, lastEventMs ?? Date.now()));
}

function tryLater(): void {
  stopListening();
  showSilence();
  attempts += 1;
  retry = window.setTimeout(startFeed, pauseBeforeAttempt(attempts));
}

/** The connection has ended, or main refuses it. */
async function refused(failed: EventSource): Promise<void> {
  failed.close();
  window.clearTimeout(silence);
  if (lastEventMs !== null) showSilence();
  const locked = await isLocked();
  // Meanwhile the user may have tried again.
  if (source !== failed) return;
  if (!locked) return tryLater();
  stopListening();
  updateDashboard((state) => ({ ...state, connection: 'locked', silentSinceMs: null }));
}

/** The timers of a page stand still while its machine sleeps. So a page that is looked at again does not wait for them. */
export function noticeSilence(): void {
  if (source === null || lastEventMs === null || Date.now() - lastEventMs <= SILENCE_LIMIT_MS) return;
  showSilence();
  startFeed();
}

/** Listens to main. After a lost connection, it tries again with growing pauses. A call also tries again at once. */
export function startFeed(): void {
  stopListening();
  const opened = new EventSource(EVENTS_URL);
  source = opened;
  expectEvent();
  opened.onopen = () => updateDashboard(withOpenConnection);
  opened.onerror = () => void refused(opened);
  for (const type of EVENT_TYPES) opened.addEventListener(type, take);
}
