import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { AnswerTurn } from './answer-turn.js';
import { newConversation, useChat } from './chat-store.js';
import { Composer } from './composer.js';
import { questionOf, runningAnswer, type PageConversation, type Turn } from './conversation.js';
import { droppedTurns } from './dropped-turns.js';
import { NotSentEnd } from './not-sent.js';
import { QuestionTurn } from './question-turn.js';
import { SettingsForm } from './settings-form.js';
import { ToolResultsTurn } from './tool-calls.js';

export function ChatView(): JSX.Element {
  const { conversation, settings, refusal } = useChat();
  const last = conversation.turns.at(-1);
  const isEmpty = conversation.turns.length === 0;
  return (
    <section class="chat-view">
      <div class="chat-head">
        <h1>Chat</h1>
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
      <SettingsForm settings={settings} answer={last?.kind === 'answer' ? last : null} />
      {isEmpty ? (
        <p class="quiet chat-empty">
          Ask the model something. The conversation is kept in this tab alone, and forgotten when the page is loaded
          again.
        </p>
      ) : (
        <Turns conversation={conversation} />
      )}
      <Composer conversation={conversation} refusal={refusal} />
    </section>
  );
}

function Turns({ conversation }: { conversation: PageConversation }): JSX.Element {
  useFollowedEnd(conversation);
  const { turns } = conversation;
  const dropped = droppedTurns(conversation);
  return (
    <ol class="turns" aria-label="Conversation">
      {turns.map((turn, index) => [
        dropped > 0 && index === dropped && <NotSentEnd key="not-sent" count={dropped} />,
        <ShownTurn key={turn.id} conversation={conversation} turn={turn} />,
      ])}
      {dropped > 0 && dropped === turns.length && <NotSentEnd key="not-sent" count={dropped} />}
    </ol>
  );
}

function ShownTurn({ conversation, turn }: { conversation: PageConversation; turn: Turn }): JSX.Element {
  if (turn.kind === 'answer') {
    const isLast = conversation.turns.at(-1) === turn;
    return <AnswerTurn answer={turn} question={questionOf(conversation, turn.id)} isLast={isLast} />;
  }
  return turn.toolResults === undefined ? <QuestionTurn question={turn} /> : <ToolResultsTurn question={turn} />;
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
