import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { CallMethod, RepliesMethod } from '../../shared/transport/methods.js';
import type { PeerContext } from '../../shared/transport/peer-context.js';
import { cancelledCall, logFault, readsTooSlowly } from '../../shared/transport/rpc-errors.js';
import type { ServedMethod } from '../../shared/transport/served-methods.js';
import type { CallLimits } from '../../shared/transport/transport.js';
import type { ChannelSide, ChannelFrame } from './channel.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import { onAbort } from '../../shared/base/runtime/living.js';

/** One request, one reply. */
export async function callOnce<Request, Reply>(
  side: ChannelSide,
  method: CallMethod<Request, Reply>,
  { timeoutMs, signal }: CallLimits,
): Promise<Reply> {
  const { lostCode } = method;
  const { runtime } = side.owner;
  return new Promise<Reply>((resolve, reject) => {
    const settle = (end: () => void): void => {
      timer.cancel();
      stopListening();
      side.close();
      end();
    };
    const timer = waitForPeer(runtime, timeoutMs, () => {
      side.send({ kind: 'cancel' });
      settle(() => reject(new OdmoeError('TIMEOUT', `${side.label} did not answer in time`)));
    });
    const giveUp = (): void => {
      side.send({ kind: 'cancel' });
      settle(() => reject(cancelledCall(side.label)));
    };
    const stopListening = onAbort(signal, giveUp);
    if (signal?.aborted === true) giveUp();
    side.onLost = (reason) => settle(() => reject(lost(side, lostCode, reason)));
    side.onFrame = (frame) => {
      if (frame.kind === 'message') {
        settle(() => {
          try {
            resolve(method.reply.decode(frame.bytes));
          } catch (thrown) {
            reject(toOdmoeError(thrown));
          }
        });
      } else if (isEnd(frame)) settle(() => reject(endError(side, frame, lostCode)));
    };
  });
}

/** Answers a call with the result of its handler. */
export function answerOnce(
  side: ChannelSide,
  { method, handle }: Extract<ServedMethod, { shape: 'call' }>,
  request: Buffer,
  log: Logger,
  peer: PeerContext,
): void {
  const answer = async (): Promise<Buffer> => method.reply.encode(await handle(method.request.decode(request), peer));
  answer().then(
    (bytes) => {
      side.send({ kind: 'message', bytes });
      side.close();
    },
    (thrown: unknown) => {
      refuse(side, method, log, thrown);
    },
  );
}

/** One request with many replies, at the client's pace. The signal aborts when the client goes away. */
export function answerStreaming(
  side: ChannelSide,
  { method, handle }: Extract<ServedMethod, { shape: 'replies' }>,
  request: Buffer,
  log: Logger,
  slowReaderLimitMs: number,
  peer: PeerContext,
): void {
  const gone = new AbortController();
  let held = 0;
  let wake: () => void = () => undefined;
  const end = (): void => {
    gone.abort();
    wake();
  };
  side.onLost = end;
  side.onFrame = (frame) => {
    if (frame.kind === 'credit') {
      held -= 1;
      wake();
    } else if (frame.kind === 'cancel') {
      side.close();
      end();
    }
  };
  const room = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const timer = waitForPeer(side.owner.runtime, slowReaderLimitMs, () => {
        reject(readsTooSlowly(slowReaderLimitMs));
      });
      wake = () => {
        timer.cancel();
        resolve();
      };
    });
  const answer = async (): Promise<void> => {
    for await (const reply of handle(method.request.decode(request), gone.signal, peer)) {
      if (gone.signal.aborted) return;
      held += 1;
      side.send({ kind: 'message', bytes: method.reply.encode(reply) });
      while (held >= method.heldByServer && !gone.signal.aborted) await room();
    }
  };
  answer().then(
    () => {
      side.send({ kind: 'end' });
      side.close();
    },
    (thrown: unknown) => {
      if (!gone.signal.aborted) refuse(side, method, log, thrown);
    },
  );
}

/** The replies in order, all of them even if an error follows; leaving the loop cancels the call. */
export async function* readReplies<Request, Reply>(
  connect: () => ChannelSide,
  method: RepliesMethod<Request, Reply>,
  idleLimitMs: number,
  signal: AbortSignal | undefined,
): AsyncGenerator<Reply, void, undefined> {
  const side = connect();
  const { lostCode } = method;
  const arrived: Buffer[] = [];
  let end: { error: OdmoeError | null } | null = null;
  let wake: () => void = () => undefined;
  const over = (error: OdmoeError | null): void => {
    end ??= { error };
    side.close();
    wake();
  };
  side.onLost = (reason) => over(lost(side, lostCode, reason));
  side.onFrame = (frame) => {
    if (frame.kind === 'message') {
      arrived.push(frame.bytes);
      side.noteUnread(arrived.length);
      wake();
    } else if (frame.kind === 'end') over(null);
    else if (isEnd(frame)) over(endError(side, frame, lostCode));
  };
  const cancelled = (): void => {
    side.send({ kind: 'cancel' });
    over(new OdmoeError('CANCELLED', `the call to ${side.label} was cancelled`));
  };
  const leave = onAbort(signal, cancelled);
  if (signal?.aborted === true) cancelled();
  try {
    for (;;) {
      const next = arrived.shift();
      if (next !== undefined) {
        side.send({ kind: 'credit' });
        yield method.reply.decode(next);
      } else if (end !== null) {
        const { error } = end as { error: OdmoeError | null };
        if (error !== null) throw error;
        return;
      } else {
        await waitFor((resolve) => (wake = resolve), side, idleLimitMs, lostCode);
      }
    }
  } finally {
    leave();
    if (side.isOpen) side.send({ kind: 'cancel' });
    side.close();
  }
}

async function waitFor(
  listen: (resolve: () => void) => void,
  side: ChannelSide,
  limitMs: number,
  lostCode: ErrorCode,
): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const timer = Number.isFinite(limitMs)
      ? waitForPeer(side.owner.runtime, limitMs, () => {
          reject(new OdmoeError(lostCode, `${side.label} has sent nothing for ${limitMs / 1000} s`));
        })
      : null;
    listen(() => {
      timer?.cancel();
      resolve();
    });
  });
}

type EndFrame = Extract<ChannelFrame, { kind: 'failed' | 'cancel' | 'end' }>;

function isEnd(frame: ChannelFrame): frame is EndFrame {
  return frame.kind === 'failed' || frame.kind === 'cancel' || frame.kind === 'end';
}

function endError(side: ChannelSide, frame: EndFrame, lostCode: ErrorCode): OdmoeError {
  return frame.kind === 'failed' ? new OdmoeError(frame.code, frame.text) : lost(side, lostCode, 'it was reset');
}

function lost(side: ChannelSide, code: ErrorCode, reason: string): OdmoeError {
  return new OdmoeError(code, `the connection to ${side.label} failed: ${reason}`);
}

function refuse(side: ChannelSide, method: Parameters<typeof logFault>[1], log: Logger, thrown: unknown): void {
  const error = toOdmoeError(thrown);
  logFault(log, method, side.peerHost, error);
  side.send({ kind: 'failed', code: error.code, text: error.message });
  side.close();
}
