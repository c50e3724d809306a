import winston from 'winston';
import type { Runtime, Timer } from '../runtime/runtime.js';
import { printableJson } from '../text/printable-text.js';
import { standardError } from '../text/text-output.js';
import { LEFT_OUT_PERIOD_MS, type Level, LineLimits, peerOf } from './line-limits.js';

/**
 * Writes one line for each event to stderr. `event` is a short phrase that does not change with its data; the data go into `fields`. Prompts,
 * answers and tokens must not be logged.
 */
export interface Logger {
  error(event: string, fields?: Record<string, unknown>): void;
  warn(event: string, fields?: Record<string, unknown>): void;
  info(event: string, fields?: Record<string, unknown>): void;
  debug(event: string, fields?: Record<string, unknown>): void;
}

/** The clocks and timers that the log uses. */
export type LogClock = Pick<Runtime, 'nowMs' | 'wallMs' | 'after'>;

/** The level and the format of the lines that are written. */
export interface LogSettings {
  level: Level;
  format: 'text' | 'json';
}

const LEVELS = { error: 0, warn: 1, info: 2, debug: 3 } as const;

/** Longest value of one field. A longer value is cut, so that a peer's text cannot flood the log. */
const FIELD_LENGTH_LIMIT = 2000;

/**
 * Every line is written through this function. LineLimits bounds the number of lines, so callers need no bound. The number of lines that were
 * left out is reported. The fields of `bound` stand in every line. `stream` gets the lines; stderr unless a test passes another.
 */
export function createLogger(
  settings: LogSettings,
  bound: { role: string; id: string },
  clock: LogClock,
  stream: NodeJS.WritableStream = standardError.asStream(),
): Logger {
  const render = settings.format === 'json' ? jsonLine : textLine;
  const inner = winston.createLogger({
    levels: LEVELS,
    level: settings.level,
    format: winston.format.printf((info) => String(info.message)),
    transports: [new winston.transports.Stream({ stream, eol: '\n' })],
  });
  const put = (level: Level, event: string, fields: Record<string, unknown>): void => {
    inner.log(level, render({ level, event, time: new Date(clock.wallMs()).toISOString(), bound, fields }));
  };
  const limits = new LineLimits(() => clock.nowMs());
  let telling: Timer | null = null;
  const tellLeftOut = (): void => {
    telling = null;
    for (const { event: like, lines, seconds } of limits.takeLeftOut()) {
      put(settings.level, 'lines like this were left out', { like, lines, seconds });
    }
  };
  const write =
    (level: Level) =>
    (event: string, fields: Record<string, unknown> = {}): void => {
      if (LEVELS[level] > LEVELS[settings.level]) return;
      if (limits.admits(level, event, peerOf(fields))) {
        put(level, event, fields);
        return;
      }
      if (telling !== null) return;
      telling = clock.after(LEFT_OUT_PERIOD_MS, tellLeftOut);
      telling.unref();
    };
  return { error: write('error'), warn: write('warn'), info: write('info'), debug: write('debug') };
}

interface LogRecord {
  level: string;
  event: string;
  time: string;
  bound: { role: string; id: string };
  fields: Record<string, unknown>;
}

function jsonLine({ level, event, time, bound, fields }: LogRecord): string {
  const entries = Object.entries(fields).map(([name, value]) => [name, plainValue(value)] as const);
  return printableJson({ ...Object.fromEntries(entries), time, level, ...bound, event });
}

function textLine({ level, event, time, bound, fields }: LogRecord): string {
  const pairs = Object.entries(fields).map(([name, value]) => ` ${name}=${quoted(plainValue(value))}`);
  return `${time} ${level.padEnd(5)} ${bound.role} ${bound.id}: ${oneLine(event)}${pairs.join('')}`;
}

function plainValue(value: unknown): unknown {
  if (value instanceof Error) {
    const code: unknown = 'code' in value ? value.code : undefined;
    return cut(typeof code === 'string' ? `${code}: ${value.message}` : value.message);
  }
  if (typeof value === 'bigint') return value.toString();
  if (typeof value === 'string') return cut(value);
  if (typeof value !== 'object' || value === null) return value;
  try {
    const text = JSON.stringify(value);
    return text.length > FIELD_LENGTH_LIMIT ? cut(text) : (JSON.parse(text) as unknown);
  } catch {
    return `[${typeof value} that JSON cannot hold]`;
  }
}

function cut(text: string): string {
  return text.length > FIELD_LENGTH_LIMIT ? `${text.slice(0, FIELD_LENGTH_LIMIT)}…` : text;
}

function quoted(value: unknown): string {
  if (typeof value === 'string') return /^[\w.:/@+-]+$/.test(value) ? value : JSON.stringify(value);
  return JSON.stringify(value) ?? 'undefined';
}

function oneLine(text: string): string {
  return text.replace(/\s*[\r\n]+\s*/g, ' ');
}
