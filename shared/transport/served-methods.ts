import { type CallMethod, METHODS, type RepliesMethod, type StreamMethod } from './methods.js';
import type { PeerContext } from './peer-context.js';
import type { PeerStream } from './peer-stream.js';
import type { PeerMessage } from './stream-pace.js';

/** The function that serves a method. The signal aborts when the caller goes away. */
export type Handler<Method> =
  Method extends StreamMethod<infer Request, infer Reply>
    ? (stream: PeerStream<Reply, Request>, peer: PeerContext) => void
    : Method extends CallMethod<infer Request, infer Reply>
      ? (request: Request, peer: PeerContext) => Promise<Reply> | Reply
      : Method extends RepliesMethod<infer Request, infer Reply>
        ? (request: Request, signal: AbortSignal, peer: PeerContext) => AsyncIterable<Reply>
        : never;

type Table = typeof METHODS;

/** The handlers of each service. */
export type Services = {
  readonly [Service in keyof Table]: { readonly [Name in keyof Table[Service]]: Handler<Table[Service][Name]> };
};

/** The handlers that a daemon has. */
export type OwnServices = { readonly [Service in keyof Services]?: Partial<Services[Service]> };

type AnyStream = StreamMethod<PeerMessage, PeerMessage>;
type AnyCall = CallMethod<object, object>;
type AnyReplies = RepliesMethod<object, object>;

/** A method with its handler. */
export type ServedMethod =
  | { readonly shape: 'stream'; readonly method: AnyStream; readonly handle: Handler<AnyStream> }
  | { readonly shape: 'call'; readonly method: AnyCall; readonly handle: Handler<AnyCall> }
  | { readonly shape: 'replies'; readonly method: AnyReplies; readonly handle: Handler<AnyReplies> };

/** The methods that these services have, by path. The types of a handler's messages are those of the method at the same place of the table. */
export function servedMethods(services: OwnServices): Map<string, ServedMethod> {
  const served = new Map<string, ServedMethod>();
  for (const [service, methods] of Object.entries(METHODS)) {
    const handlers = services[service as keyof OwnServices] as Record<string, (() => unknown) | undefined> | undefined;
    for (const [name, method] of Object.entries<Pick<AnyCall | AnyReplies | AnyStream, 'path' | 'shape'>>(methods)) {
      const handle = handlers?.[name]?.bind(handlers);
      if (handle !== undefined)
        served.set(method.path, { shape: method.shape, method, handle } as unknown as ServedMethod);
    }
  }
  return served;
}
