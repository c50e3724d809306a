import type { EventEmitter } from 'node:events';

/** Kinds of things that somebody begins and has to end. */
export const LIVING_KINDS = [
  'timer',
  'turn',
  'work',
  'abort listener',
  'event listener',
  'channel',
  'stream',
  'thread',
  'file',
  'announcement',
  'browser',
] as const;
export type LivingKind = (typeof LIVING_KINDS)[number];

interface LivingThing {
  readonly kind: LivingKind;
  readonly what: string | Caller;
}

/** The code that is called when the thing happens: its text is the thing's name, made when somebody asks for it only. */
type Caller = (...args: never[]) => unknown;

/** So much of a name is shown. */
const NAME_CHARACTERS = 160;

/**
 * The registry of things that a process has begun and not ended: timers, listeners, channels, streams, threads, files. A simulated process has a registry of its
 * own (VirtualRuntime), a real one has one in all. What is left in it after the end of what began it is a leak, and it names what that is.
 */
export class Living {
  private readonly things = new Set<LivingThing>();

  /** The thing lives until the returned function is called, which may be called again. */
  begin(kind: LivingKind, what: string | Caller): () => void {
    const thing = { kind, what };
    this.things.add(thing);
    return () => {
      this.things.delete(thing);
    };
  }

  count(kind: LivingKind): number {
    let count = 0;
    for (const thing of this.things) if (thing.kind === kind) count += 1;
    return count;
  }

  /** How many of each kind there are. */
  counts(): Record<LivingKind, number> {
    const counts = Object.fromEntries(LIVING_KINDS.map((kind) => [kind, 0])) as Record<LivingKind, number>;
    for (const { kind } of this.things) counts[kind] += 1;
    return counts;
  }

  /** A line for each thing of these kinds, oldest first. */
  names(kinds: readonly LivingKind[] = LIVING_KINDS): string[] {
    return [...this.things]
      .filter(({ kind }) => kinds.includes(kind))
      .map(
        ({ kind, what }) =>
          `${kind}: ${(typeof what === 'string' ? what : what.toString()).replace(/\s+/g, ' ').slice(0, NAME_CHARACTERS)}`,
      );
  }
}

const ofThisProcess = new Living();
let current = ofThisProcess;

/** The registry in which the code that runs now notes what it begins. */
export function living(): Living {
  return current;
}

/** From now on others run: those of a simulated process, or, with null, those of this real one. */
export function liveIn(registry: Living | null): void {
  current = registry ?? ofThisProcess;
}

const NOTHING = (): void => undefined;

/**
 * Calls `run` once when the signal aborts, unless the returned function has been called before: whoever no longer waits calls it, because
 * signals outlive those who listen. An aborted signal calls nobody; ask it first. Without a signal nobody listens. Nobody else adds listeners
 * to signals.
 */
export function onAbort(signal: AbortSignal | undefined, run: () => void): () => void {
  if (signal === undefined || signal.aborted) return NOTHING;
  const end = living().begin('abort listener', run);
  const heard = (): void => {
    end();
    run();
  };
  signal.addEventListener('abort', heard, { once: true });
  return () => {
    end();
    signal.removeEventListener('abort', heard);
  };
}

/**
 * Listens until the returned function is called. For emitters that outlive those who listen: sockets that are kept alive, servers, streams
 * of the process.
 */
export function onEvent<Argument>(emitter: EventEmitter, event: string, run: (argument: Argument) => void): () => void {
  const end = living().begin('event listener', run);
  emitter.on(event, run);
  return () => {
    end();
    emitter.off(event, run);
  };
}
