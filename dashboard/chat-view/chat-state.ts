import { useEffect, useState } from 'preact/hooks';
import type { TypedSettings } from './chat-settings.js';
import { EMPTY_PAGE_CONVERSATION, type PageConversation } from './conversation.js';
import type { KeptHead } from './kept-form.js';
import { rememberedKeeping, rememberedSettings } from './kept-preferences.js';
import type { RunningHere } from './tab-channel.js';

/** Something that can be taken back. */
export interface Undo {
  words: string;
  undo: () => void;
}

export interface ChatState {
  /** The shown conversation. */
  conversation: PageConversation;
  /** Conversations in this tab's memory, by id: the shown one, those with an answer under way, and those that are not kept. */
  live: ReadonlyMap<string, PageConversation>;
  /** What the browser keeps, with what is left of deleted conversations. */
  heads: readonly KeptHead[];
  settings: TypedSettings;
  /** The reason why the last question was not sent; empty: it was sent. */
  refusal: string;
  /** The browser's storage has not been read yet. */
  isLoading: boolean;
  /** False: conversations and settings stay in this tab's memory. */
  keeps: boolean;
  /** Why the browser keeps no more; empty: it does. */
  keepingProblem: string;
  /** Another tab has deleted the shown conversation. */
  isDeletedElsewhere: boolean;
  /** Answers under way in this tab, and in others. */
  runningHere: readonly RunningHere[];
  runningElsewhere: readonly RunningHere[];
  /** The latest last. */
  undos: readonly Undo[];
  /** What was just done and cannot be seen elsewhere, or went wrong; empty: nothing. */
  note: string;
  /** The question whose editor is open; null: none. */
  edited: number | null;
}

type Listener = () => void;

/** The state lives outside the view, so that an answer continues while another view is shown. */
let state: ChatState = {
  conversation: EMPTY_PAGE_CONVERSATION,
  live: new Map(),
  heads: [],
  settings: rememberedSettings(),
  refusal: '',
  isLoading: true,
  keeps: rememberedKeeping(),
  keepingProblem: '',
  isDeletedElsewhere: false,
  runningHere: [],
  runningElsewhere: [],
  undos: [],
  note: '',
  edited: null,
};
const listeners = new Set<Listener>();

export function chatState(): ChatState {
  return state;
}

export function update(change: Partial<ChatState>): void {
  state = { ...state, ...change };
  for (const listener of [...listeners]) listener();
}

export function useChat(): ChatState {
  const [shown, setShown] = useState(state);
  useEffect(() => {
    const listener = (): void => setShown(state);
    listeners.add(listener);
    listener();
    return () => {
      listeners.delete(listener);
    };
  }, []);
  return shown;
}

const UNDOS_LIMIT = 20;

/** Offers to take something back; the latest is offered first. */
export function offerUndo(words: string, undo: () => void): void {
  update({ undos: [...state.undos, { words, undo }].slice(-UNDOS_LIMIT) });
}
