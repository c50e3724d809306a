/** The roster of a cluster with an authority, as main has it. */
export interface RosterSource {
  /** The newest roster, as the authority has signed it; null: there is none yet. */
  readonly signedRoster: Uint8Array | null;
  /** The reason why nobody of this id is in the cluster any more; null: one is, or none was removed. */
  removalOf(id: string): string | null;
  /** `changed`: called when there may be a newer roster. Returns a function that ends this. */
  watch(changed: () => void): () => void;
}

/** A connected daemon. */
export interface RosterReceiver {
  sendRoster(signed: Uint8Array): void;
}

/**
 * Sends the cluster's signed roster to every daemon that main welcomes, and each newer one to all of them. It must watch before any stream is
 * opened: a daemon that a newer roster removes gets this roster, and reads there why, before its stream ends.
 */
export class RosterPost {
  private latest: Uint8Array | null;
  private readonly unwatch: () => void;

  /** `connected`: the daemons that have been welcomed. */
  constructor(
    private readonly source: RosterSource,
    private readonly connected: () => readonly RosterReceiver[],
  ) {
    this.latest = source.signedRoster;
    this.unwatch = source.watch(() => this.changed());
  }

  /** Main has welcomed the daemon. */
  welcomed(receiver: RosterReceiver): void {
    if (this.latest !== null) receiver.sendRoster(this.latest);
  }

  stop(): void {
    this.unwatch();
  }

  /** A renewal of main's own certificate comes here, too. */
  private changed(): void {
    const { signedRoster } = this.source;
    if (signedRoster === null || signedRoster === this.latest) return;
    this.latest = signedRoster;
    for (const receiver of this.connected()) receiver.sendRoster(signedRoster);
  }
}
