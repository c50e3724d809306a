import { chatState, update } from './chat-state.js';
import { isRunning, type Answer, type PageConversation } from './conversation.js';
import {
  emptyConversation,
  hasUnkept,
  keepAll,
  loadConversation,
  markDeleted,
  refreshHeads,
  replaceLive,
  showLive,
  takeIn,
  takeInLeft,
  unkeptConversations,
} from './conversation-keeper.js';
import { withCutAnswers } from './cut-answers.js';
import { removeOldHeads } from './kept-conversations.js';
import { keepingProblemWords } from './kept-form.js';
import { rememberedOpen, rememberLeft, takeLeft } from './kept-preferences.js';
import { noteLeaving, stopRunningHere, tellRunning } from './running-answers.js';
import { listenToTabs, tellTabs, THIS_TAB, type RunningHere, type TabMessage } from './tab-channel.js';

/** Time for the other tabs to say what they have under way; and how often they are asked while one shows here. */
const REPLY_MS = 1000;
const ASK_MS = 10_000;

const runningByTab = new Map<string, readonly RunningHere[]>();
let hasStarted = false;
let isAsking = false;

/** Reads what the browser keeps, and shows the conversation that this tab showed before. The first call alone does something. */
export async function startKeeping(): Promise<void> {
  if (hasStarted) return;
  hasStarted = true;
  showLiveUnlessRemembered();
  listenToTabs((message) => void receive(message).catch(showProblem));
  tellTabs({ kind: 'who' });
  window.addEventListener('pagehide', onPageHide);
  document.addEventListener('visibilitychange', () => {
    if (document.visibilityState === 'hidden') void keepAll();
  });
  window.addEventListener('beforeunload', (event) => {
    noteLeaving();
    const { keeps, keepingProblem } = chatState();
    if (keeps && keepingProblem !== '' && hasUnkept()) event.preventDefault();
  });
  try {
    await refreshHeads();
    for (const left of takeLeft()) await takeInLeft(left);
    await showRemembered();
    await removeOldHeads(Date.now());
  } catch (thrown) {
    showProblem(thrown);
  }
  update({ isLoading: false });
}

function showProblem(thrown: unknown): void {
  update({ keepingProblem: keepingProblemWords(thrown) });
}

/** The other tabs learn at once that no answer is under way here. The likelihoods of tokens stay behind where there is no room for them. */
function onPageHide(): void {
  void keepAll();
  const left = unkeptConversations();
  if (!rememberLeft(left)) rememberLeft(left.map(withoutTokens));
  tellTabs({ kind: 'runs', tab: THIS_TAB, answers: [] });
}

function withoutTokens(conversation: PageConversation): PageConversation {
  const bare = (answer: Answer): Answer => ({
    ...answer,
    tokens: [],
    came: answer.came === null ? null : bare(answer.came),
  });
  return { ...conversation, all: conversation.all.map((turn) => (turn.kind === 'answer' ? bare(turn) : turn)) };
}

let remembered: string | null = null;

function showLiveUnlessRemembered(): void {
  remembered = chatState().keeps ? rememberedOpen() : null;
  showLive(emptyConversation());
}

async function showRemembered(): Promise<void> {
  const before = remembered === null ? null : await loadConversation(remembered);
  // The user may have asked something meanwhile.
  if (before !== null && chatState().conversation.all.length === 0) showOpened(before);
}

/** Shows a conversation that was loaded. An answer that is under way in no tab is then shown as cut. */
export function showOpened(conversation: PageConversation): void {
  showLive(conversation);
  void askTabs();
}

async function receive(message: TabMessage): Promise<void> {
  switch (message.kind) {
    case 'who':
      return tellRunning();
    case 'runs':
      runningByTab.set(message.tab, message.answers);
      showRunning();
      return askTabs();
    case 'stop':
      return stopRunningHere(message.answer);
    case 'changed':
      await takeIn(message.conversation, message.turns);
      return askTabs();
    case 'deleted':
      for (const id of message.conversations) takeDeletion(id);
      return refreshHeads();
    case 'keeps':
      return update({ keeps: message.keeps });
  }
}

function takeDeletion(id: string): void {
  const { runningHere, conversation } = chatState();
  if (conversation.id !== id) {
    for (const each of runningHere) if (each.conversation === id) stopRunningHere(each.id);
  }
  markDeleted(id);
}

function showRunning(): void {
  update({ runningElsewhere: [...runningByTab.values()].flat() });
}

/** As long as the shown conversation has an answer under way in another tab, asks from time to time whether that tab is there. */
async function askTabs(): Promise<void> {
  if (isAsking || !showsOthersAnswer()) return;
  isAsking = true;
  for (;;) {
    runningByTab.clear();
    tellTabs({ kind: 'who' });
    await pause(REPLY_MS);
    showRunning();
    markCut();
    if (!showsOthersAnswer()) break;
    await pause(ASK_MS);
  }
  isAsking = false;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => window.setTimeout(resolve, ms));
}

function showsOthersAnswer(): boolean {
  const { conversation, runningHere } = chatState();
  const here = new Set(runningHere.map(({ id }) => id));
  return conversation.all.some((turn) => turn.kind === 'answer' && isRunning(turn) && !here.has(turn.id));
}

function markCut(): void {
  const { conversation, runningHere, runningElsewhere } = chatState();
  const running = new Set([...runningHere, ...runningElsewhere].map(({ id }) => id));
  const next = withCutAnswers(conversation, running);
  if (next !== conversation) replaceLive(next);
}
