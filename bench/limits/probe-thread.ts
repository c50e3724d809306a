/**
 * A thread that sends requests to a daemon in a loop, asks main for single tokens, and reports its longest waits. Hostile messages come from
 * another thread, so that sending them does not delay these measurements.
 */
import { readFileSync } from 'node:fs';
import { Agent, get } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import { parentPort, workerData } from 'node:worker_threads';
import { transport } from '../../cli/client/process-runtime.js';
import { busyMsOf } from './process-usage.js';
import { askOnce } from './small-request.js';
import type { ProbeTarget, Waits } from './stall-probe.js';
import { METHODS } from '../../shared/transport/methods.js';

/** Pause between an answer and the next request. */
const PAUSE_MS = 5;
const SMALL_REQUEST_PAUSE_MS = 100;
/** A daemon that is silent for this long counts as gone. */
const ASK_LIMIT_MS = 120_000;

const target = workerData as ProbeTarget;
const waits: Waits = { stallMs: 0, busyMs: 0, besideMs: 0 };
let smallRequest: Promise<void> = Promise.resolve();

parentPort?.on('message', () => void tell());
void askForTokens();
await askForHealth(target.kind === 'http' ? healthOf(target.url) : identityOf(target.address));

/** Reports the longest waits since the last report, after the running small request has ended. */
async function tell(): Promise<void> {
  await smallRequest;
  parentPort?.postMessage({ ...waits });
  Object.assign(waits, { stallMs: 0, busyMs: 0, besideMs: 0 });
}

async function askForHealth(ask: () => Promise<void>): Promise<never> {
  for (;;) {
    const began = performance.now();
    const busyBefore = busyMs();
    // The end of a daemon is noticed elsewhere.
    await ask().catch(() => undefined);
    waits.stallMs = Math.max(waits.stallMs, performance.now() - began);
    waits.busyMs = Math.max(waits.busyMs, busyMs() - busyBefore);
    await pause(PAUSE_MS);
  }
}

async function askForTokens(): Promise<never> {
  for (;;) {
    smallRequest = timeOne();
    await smallRequest;
    await pause(SMALL_REQUEST_PAUSE_MS);
  }
}

async function timeOne(): Promise<void> {
  const began = performance.now();
  const answered = await askOnce(target.mainUrl);
  const tookMs = performance.now() - began;
  waits.besideMs = answered && waits.besideMs !== null ? Math.max(waits.besideMs, tookMs) : null;
}

/** Processor time of the daemon's event loop so far; 0 if the daemon has ended. */
function busyMs(): number {
  try {
    return busyMsOf(readFileSync(`/proc/${target.pid}/task/${target.pid}/schedstat`, 'utf8'));
  } catch {
    return 0;
  }
}

function healthOf(url: string): () => Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  return () =>
    new Promise((resolve, reject) => {
      const request = get(`${url}/health`, { agent, timeout: ASK_LIMIT_MS }, (response) => {
        response.resume().on('end', resolve).on('error', reject);
      });
      request.on('error', reject);
    });
}

function identityOf(address: string): () => Promise<void> {
  const connection = transport.connect(address, METHODS.node.identify);
  return async () => {
    await connection.call(METHODS.node.identify, {}, { timeoutMs: ASK_LIMIT_MS });
  };
}
