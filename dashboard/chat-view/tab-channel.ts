/** What the page's tabs in one browser tell each other. */
export type TabMessage =
  /** These turns of the conversation, or (none) what is kept beside them, were written. */
  | { kind: 'changed'; conversation: string; turns: readonly number[] }
  | { kind: 'deleted'; conversations: readonly string[] }
  /** Asks each tab for its `runs`. */
  | { kind: 'who' }
  /** The answers under way in that tab: each id with its conversation. */
  | { kind: 'runs'; tab: string; answers: readonly RunningHere[] }
  /** Asks the tab that has this answer under way to stop it. */
  | { kind: 'stop'; answer: number }
  /** Whether the browser keeps conversations from now on. */
  | { kind: 'keeps'; keeps: boolean };

export interface RunningHere {
  id: number;
  conversation: string;
}

const CHANNEL = 'odmoe-chat';

/** This tab, until it is loaded again. */
export const THIS_TAB = crypto.getRandomValues(new Uint32Array(2)).join('-');

let opened: BroadcastChannel | null = null;

function channel(): BroadcastChannel {
  opened ??= new BroadcastChannel(CHANNEL);
  return opened;
}

/** Begins to listen to the other tabs. */
export function listenToTabs(onMessage: (message: TabMessage) => void): void {
  channel().onmessage = ({ data }: MessageEvent<TabMessage>) => onMessage(data);
}

export function tellTabs(message: TabMessage): void {
  channel().postMessage(message);
}
