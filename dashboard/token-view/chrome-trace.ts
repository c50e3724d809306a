import type { PassTimeline } from '../../shared/wire/cluster-events.js';
import type { Bar, Lane, Timeline } from './timeline.js';

/** An event of the trace event format of chrome://tracing and Perfetto; times in microseconds. */
export interface TraceEvent {
  name: string;
  cat: string;
  /** 'X': an event that lasts `dur`. 'i': a moment. 'M': the name of a process or thread. */
  ph: 'X' | 'i' | 'M';
  ts: number;
  dur?: number;
  pid: number;
  tid: number;
  /** Only for moments: 't' draws them in their own thread. */
  s?: 't';
  args: Record<string, string | number | boolean>;
}

export interface ChromeTrace {
  traceEvents: TraceEvent[];
  displayTimeUnit: 'ms';
  otherData: Record<string, string | number>;
}

const WORDS: Record<Bar['kind'], string> = {
  attention: 'attention',
  wait: 'wait',
  sum: 'sum',
  head: 'head',
  shadow: 'shadow',
  load: 'load',
  stall: 'stall',
  execute: 'execute',
};

/** A process for each node, a thread for each row of its lane. Time 0 is the earliest time in the timeline. */
export function chromeTrace(pass: PassTimeline, timeline: Timeline): ChromeTrace {
  const toUs = (ms: number): number => Math.round((ms - timeline.beginMs) * 1000);
  return {
    traceEvents: timeline.lanes.flatMap((lane, index) => laneEvents(lane, index + 1, toUs)),
    displayTimeUnit: 'ms',
    otherData: { pass: pass.number, rows: pass.members.reduce((sum, { rows }) => sum + rows, 0) },
  };
}

function laneEvents(lane: Lane, pid: number, toUs: (ms: number) => number): TraceEvent[] {
  const named = (name: string, tid: number, value: string): TraceEvent => {
    return { name, cat: '__metadata', ph: 'M', ts: 0, pid, tid, args: { name: value } };
  };
  const order: TraceEvent = {
    name: 'process_sort_index',
    cat: '__metadata',
    ph: 'M',
    ts: 0,
    pid,
    tid: 0,
    args: { sort_index: pid },
  };
  const threads = Array.from({ length: lane.rows }, (_, row) => named('thread_name', row + 1, threadName(lane, row)));
  const bars = lane.bars.map((bar): TraceEvent => {
    const ts = toUs(bar.fromMs);
    return {
      name: eventName(bar),
      cat: bar.kind,
      ph: 'X',
      ts,
      dur: Math.max(0, toUs(bar.toMs) - ts),
      pid,
      tid: bar.row + 1,
      args: argumentsOf(bar),
    };
  });
  const predictions = lane.predictions.map(({ atMs, layer, text }): TraceEvent => {
    const name = `prediction of layer ${layer}`;
    return { name, cat: 'prediction', ph: 'i', ts: toUs(atMs), pid, tid: 1, s: 't', args: { text } };
  });
  return [named('process_name', 0, lane.name), order, ...threads, ...bars, ...predictions];
}

function threadName({ role, rows }: Lane, row: number): string {
  if (role !== 'worker') return role;
  if (row === rows - 1) return 'execute';
  return rows === 2 ? 'load' : `load ${row + 1}`;
}

function eventName({ kind, layer, label }: Bar): string {
  const expert = kind === 'load' || kind === 'execute' ? ` expert ${label}` : '';
  return layer < 0 ? WORDS[kind] : `${WORDS[kind]}${expert} L${layer}`;
}

function argumentsOf({ layer, text, foretold, reloaded }: Bar): TraceEvent['args'] {
  const place = layer < 0 ? {} : { layer };
  return { ...place, text, ...(foretold === null ? {} : { foretold, reloaded }) };
}
