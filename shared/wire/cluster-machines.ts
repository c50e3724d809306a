/**
 * The answers of `/cluster/machines` (docs/http.md): the machines of a cluster with an authority, and those that wait to join it. Times are
 * milliseconds. They hold no code and no key.
 */
import type { NodeRole } from './cluster-events.js';

/** Daemons, and computers of people who direct the cluster. */
export type MachineRole = NodeRole | 'operator';

export interface MachinesView {
  /** `words`: as every machine shows them when it joins. Null: the cluster has no authority, and no machine is asked to join. */
  authority: { cluster: string; words: string } | null;
  /** The request's key has the role of an operator. */
  mayChange: boolean;
  /** Some key of main has the role of an operator. */
  hasOperatorKey: boolean;
  /** For operators: machines that show a code, the first one first. Empty for others. */
  waiting: WaitingMachineView[];
  /** So many wrong codes send every machine away that waits. */
  wrongCodesLeft: number;
  /** Machines in the cluster. */
  nodes: ListedMachineView[];
}

export interface WaitingMachineView {
  id: string;
  role: MachineRole;
  /** The machine's own words about its device. */
  device: string;
  /** The host from which it asks. */
  address: string;
  waitedMs: number;
}

export interface ListedMachineView {
  id: string;
  role: MachineRole;
  /** The time of joining by main's clock, since 1970. */
  sinceMs: number;
  /** Main is connected with it. */
  isConnected: boolean;
  /** Empty: it is not connected. */
  device: string;
  /** "host:port"; empty: it is not connected. */
  address: string;
  /** What its drain waits for, in words behind its id; empty: it gets work. */
  drain: string;
}

/** A machine that was let in. */
export interface AcceptedMachineView {
  id: string;
  role: MachineRole;
  device: string;
  address: string;
  /** The authority in words, to compare with those on the machine's screen. */
  words: string;
}
