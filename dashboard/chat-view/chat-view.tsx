import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { AnswerTurn } from './answer-turn.js';
import { ChatNotes } from './chat-notes.js';
import { useChat, type ChatState } from './chat-state.js';
import { newConversation } from './chat-store.js';
import { Composer } from './composer.js';
import { questionOf, runningAnswer, siblingsOf, type PageConversation, type Turn } from './conversation.js';
import { ConversationList } from './conversation-list.js';
import { droppedTurns } from './dropped-turns.js';
import { NotSentEnd } from './not-sent.js';
import { startKeeping } from './other-tabs.js';
import { QuestionTurn } from './question-turn.js';
import { SettingsForm } from './settings-form.js';
import { ToolResultsTurn } from './tool-calls.js';
import { TintSwitch } from './tint-switch.js';

export function ChatView(): JSX.Element {
  const chat = useChat();
  const { conversation, settings, refusal, isLoading } = chat;
  const [isListOpen, setListOpen] = useState(false);
  useEffect(() => void startKeeping(), []);
  const last = conversation.turns.at(-1);
  const isEmpty = conversation.turns.length === 0;
  return (
    <section class="chat-view">
      <div class="chat-head">
        <h1>Chat</h1>
        <div class="chat-head-buttons">
          <button
            type="button"
            class="button"
            aria-expanded={isListOpen}
            aria-controls="conversations"
            onClick={() => setListOpen(!isListOpen)}
          >
            Conversations
          </button>
          <button
            type="button"
            class="button"
            aria-keyshortcuts="Control+Shift+O Meta+Shift+O"
            disabled={isEmpty}
            onClick={newConversation}
          >
            New chat
          </button>
        </div>
      </div>
      <ChatNotes {...chat} />
      {isListOpen && <ConversationList chat={chat} onChosen={() => setListOpen(false)} />}
      <SettingsForm settings={settings} answer={last?.kind === 'answer' ? last : null} />
      {isEmpty ? (
        <p class="quiet chat-empty">{isLoading ? 'Looks for your conversations …' : 'Ask the model something.'}</p>
      ) : (
        <>
          <TintSwitch />
          <Turns chat={chat} />
        </>
      )}
      <Composer conversation={conversation} refusal={refusal} />
    </section>
  );
}

function Turns({ chat }: { chat: ChatState }): JSX.Element {
  const { conversation } = chat;
  useFollowedEnd(conversation);
  const { turns } = conversation;
  const dropped = droppedTurns(conversation);
  return (
    <ol class="turns" aria-label="Conversation">
      {turns.map((turn, index) => [
        dropped > 0 && index === dropped && <NotSentEnd key="not-sent" count={dropped} />,
        // Versions of a turn share an element, so that the focus stays on the arrows between them.
        <ShownTurn key={`${turn.kind} after ${turn.parentId ?? 'nothing'}`} chat={chat} turn={turn} />,
      ])}
      {dropped > 0 && dropped === turns.length && <NotSentEnd key="not-sent" count={dropped} />}
    </ol>
  );
}

function ShownTurn({ chat, turn }: { chat: ChatState; turn: Turn }): JSX.Element {
  const { conversation, edited, runningHere } = chat;
  const siblings = siblingsOf(conversation, turn);
  if (turn.kind === 'answer') {
    return (
      <AnswerTurn
        answer={turn}
        question={questionOf(conversation, turn.id)}
        siblings={siblings}
        isLast={conversation.turns.at(-1) === turn}
        isElsewhere={!runningHere.some(({ id }) => id === turn.id)}
      />
    );
  }
  if (turn.toolResults !== undefined) return <ToolResultsTurn question={turn} siblings={siblings} />;
  return <QuestionTurn question={turn} siblings={siblings} isEdited={edited === turn.id} />;
}

/** Distance from the page's end below which the page scrolls along with new text. */
const NEAR_END_PIXELS = 160;

function useFollowedEnd(conversation: PageConversation): void {
  const last = useRef({ turns: 0, height: 0, isRunning: false });
  useEffect(() => {
    const { scrollHeight, clientHeight, scrollTop } = document.documentElement;
    const before = last.current;
    const isRunning = runningAnswer(conversation) !== null;
    last.current = { turns: conversation.turns.length, height: scrollHeight, isRunning };
    const isNew = before.turns !== conversation.turns.length;
    // The content below an ended answer may be higher than NEAR_END_PIXELS.
    const hasEnded = before.isRunning && !isRunning;
    const isNear = (hasEnded ? before.height : scrollHeight) - clientHeight - scrollTop < NEAR_END_PIXELS;
    if (isNew || (isNear && (isRunning || hasEnded))) window.scrollTo({ top: scrollHeight });
  }, [conversation]);
}
