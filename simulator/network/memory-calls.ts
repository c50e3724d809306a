/** Single calls over the network in memory. */
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { answerCall, type AnswerLimits, answerReplies } from '../../shared/transport/answer-calls.js';
import { ArrivedReplies } from '../../shared/transport/arrived-replies.js';
import type { CallMethod, RepliesMethod } from '../../shared/transport/methods.js';
import type { PeerContext } from '../../shared/transport/peer-context.js';
import { cancelledCall } from '../../shared/transport/rpc-errors.js';
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

/** The handler's signal aborts when the client goes away. */
export function answerMemoryReplies(
  side: ChannelSide,
  served: Extract<ServedMethod, { shape: 'replies' }>,
  request: Buffer,
  peer: PeerContext,
  limits: AnswerLimits,
): void {
  const gone = new AbortController();
  let unread = 0;
  let onTaken: () => void = () => undefined;
  side.onLost = () => gone.abort();
  side.onFrame = (frame) => {
    if (frame.kind === 'credit') {
      unread -= 1;
      onTaken();
    } else if (frame.kind === 'cancel') {
      side.close();
      gone.abort();
    }
  };
  const send = (bytes: Buffer, taken: () => void): void => {
    unread += 1;
    onTaken = taken;
    side.send({ kind: 'message', bytes });
  };
  const caller = { peer, name: side.peerHost, send, unread: () => unread };
  answerReplies(served, request, caller, gone.signal, limits).then(() => finish(side, { kind: 'end' }), refusing(side));
}

export function answerMemoryCall(
  side: ChannelSide,
  served: Extract<ServedMethod, { shape: 'call' }>,
  request: Buffer,
  peer: PeerContext,
  log: Logger,
): void {
  const reply = answerCall(served, request, { peer, name: side.peerHost }, log);
  reply.then((bytes) => finish(side, { kind: 'message', bytes }), refusing(side));
}

function refusing(side: ChannelSide): (thrown: unknown) => void {
  return (thrown) => {
    const { code, message } = toOdmoeError(thrown);
    finish(side, { kind: 'failed', code, text: message });
  };
}

function finish(side: ChannelSide, last: ChannelFrame): void {
  side.send(last);
  side.close();
}

/** The replies as ArrivedReplies reads them; leaving the loop cancels the call. */
export async function* readMemoryReplies<Request, Reply>(
  connect: () => ChannelSide,
  method: RepliesMethod<Request, Reply>,
  idleLimitMs: number,
  signal: AbortSignal | undefined,
): AsyncGenerator<Reply, void, undefined> {
  const side = connect();
  const { lostCode, reply } = method;
  const replies = new ArrivedReplies(side.owner.runtime, side.label, method, idleLimitMs);
  const over = (error: OdmoeError | null): void => {
    side.close();
    replies.end(error);
  };
  side.onLost = (reason) => over(lost(side, lostCode, reason));
  side.onFrame = (frame) => {
    if (frame.kind === 'message') {
      replies.add(frame.bytes);
      side.noteUnread(replies.unread);
    } else if (frame.kind === 'end') over(null);
    else if (isEnd(frame)) over(endError(side, frame, lostCode));
  };
  const cancelled = (): void => {
    side.send({ kind: 'cancel' });
    over(cancelledCall(side.label));
  };
  const leave = onAbort(signal, cancelled);
  if (signal?.aborted === true) cancelled();
  try {
    for await (const bytes of replies.read(() => side.send({ kind: 'credit' }))) yield reply.decode(bytes);
  } finally {
    leave();
    if (side.isOpen) side.send({ kind: 'cancel' });
    side.close();
  }
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
