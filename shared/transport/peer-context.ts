/** The caller of a method, as the transport knows it. Every handler gets it. */
export interface PeerContext {
  /** Address from which the peer connected, without its port. */
  readonly host: string;
}
