import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type {
  DraftToken,
  NodeIdentity,
  NodeStatus,
  Predict,
  Restart,
  PrefixKept,
  ShadowReply,
  ShadowRequest,
} from '../../shared/wire/messages.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import { LatestStatus } from './latest-status.js';

/** Takes a shadow's messages. */
export interface ShadowListener {
  onPrediction(prediction: Predict, by: ShadowLink): void;
  onRestart(restart: Restart, by: ShadowLink): void;
  onDraft(draft: DraftToken, by: ShadowLink): void;
  /** Returns false if the shadow was asked about fewer positions. */
  onPrefixKept(retained: PrefixKept, by: ShadowLink): boolean;
  /** The shadow does not follow that sequence any more. */
  onSequenceDropped(sequence: number, by: ShadowLink): void;
  /** The shadow's stream has ended. Called before another shadow takes its place. */
  onLost(by: ShadowLink): void;
  /** Main does not use the shadow any more, which stays connected. Called before another shadow takes its place. */
  onDrained(by: ShadowLink): void;
}

/** Main's side of the stream to one shadow that has sent its welcome. */
export class ShadowLink {
  readonly id: string;
  readonly latestStatus = new LatestStatus();
  private closed = false;

  constructor(
    readonly identity: NodeIdentity,
    readonly address: string,
    private readonly stream: PeerStream<ShadowRequest, ShadowReply>,
    private readonly shape: { expertLayers: number; experts: number; vocabSize: number },
    private readonly listener: ShadowListener,
    private readonly log: Logger,
  ) {
    this.id = identity.id;
  }

  get status(): NodeStatus | null {
    return this.latestStatus.value;
  }

  /** Traffic over this connection. */
  get traffic(): Pick<PeerStream<never, unknown>, 'sentBytes' | 'receivedBytes' | 'roundTripMs'> {
    return this.stream;
  }

  /** False once the stream has ended; messages sent after that do not arrive. */
  get alive(): boolean {
    return !this.closed;
  }

  get backlogBytes(): number {
    return this.stream.backlogBytes;
  }

  send(request: ShadowRequest): void {
    if (!this.closed) this.stream.send(request);
  }

  sendRoster(signed: Uint8Array): void {
    this.send({ kind: 'roster', roster: { signed } });
  }

  /** Takes the shadow's messages after its welcome. */
  receive(reply: ShadowReply): void {
    switch (reply.kind) {
      case 'predict':
        this.takePrediction(reply.predict);
        return;
      case 'restart':
        this.listener.onRestart(reply.restart, this);
        return;
      case 'draft':
        this.takeDraft(reply.draft);
        return;
      case 'prefixKept':
        this.takePrefixKept(reply.prefixKept);
        return;
      case 'error':
        this.log.warn('shadow sent an error', {
          shadow: this.id,
          code: reply.error.code,
          message: reply.error.message,
        });
        // One message came too late; its sequence goes on.
        if (reply.error.code !== 'STALE_EPOCH') this.listener.onSequenceDropped(reply.error.requestId, this);
        return;
      case 'status':
        this.latestStatus.take(reply.status);
        return;
      case 'welcome':
      case 'refusal':
        this.close(new OdmoeError('PROTOCOL_VIOLATION', `shadow ${this.id} sent a second ${reply.kind}`));
    }
  }

  streamClosed(): void {
    this.closed = true;
    this.latestStatus.end();
    this.listener.onLost(this);
  }

  /** Main does not use it from now on: it is made to drop the sequences that it follows. */
  drained(): void {
    this.listener.onDrained(this);
  }

  close(error?: OdmoeError): void {
    this.stream.close(error);
  }

  private takeDraft(draft: DraftToken): void {
    const { tokenId, position, passPosition } = draft;
    if (tokenId < this.shape.vocabSize && passPosition <= position) {
      this.listener.onDraft(draft, this);
      return;
    }
    this.close(
      new OdmoeError(
        'PROTOCOL_VIOLATION',
        `shadow ${this.id} drafted token ${tokenId} at position ${position} of a pass that begins at ${passPosition}: a token below ` +
          `${this.shape.vocabSize} at or behind the pass's first position is expected`,
      ),
    );
  }

  private takePrefixKept(retained: PrefixKept): void {
    if (this.listener.onPrefixKept(retained, this)) return;
    this.close(
      new OdmoeError(
        'PROTOCOL_VIOLATION',
        `shadow ${this.id} says that it has ${retained.positions} positions of what sequence ${retained.sequence} begins with: it was asked ` +
          `about fewer`,
      ),
    );
  }

  private takePrediction(prediction: Predict): void {
    const { experts, layer } = prediction;
    const wellFormed =
      layer < this.shape.expertLayers &&
      new Set(experts).size === experts.length &&
      experts.every((expert) => expert < this.shape.experts);
    if (wellFormed) {
      this.listener.onPrediction(prediction, this);
      return;
    }
    this.close(
      new OdmoeError(
        'PROTOCOL_VIOLATION',
        `shadow ${this.id} predicted experts [${experts.join(', ')}] for layer ${layer}, which the model has not`,
      ),
    );
  }
}
