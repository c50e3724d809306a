import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { AnswerTurn } from './answer-turn.js';
import { forgetConversation, useChat } from './chat-store.js';
import { Composer } from './composer.js';
import { questionOf, runningAnswer, type PageConversation } from './conversation.js';
import { QuestionTurn } from './question-turn.js';
import { SettingsForm } from './settings-form.js';

export function ChatView(): JSX.Element {
  const { conversation, settings, refusal } = useChat();
  const isRunning = runningAnswer(conversation) !== null;
  const isEmpty = conversation.turns.length === 0;
  return (
    <section class="chat-view">
      <div class="chat-head">
        <h1>Chat</h1>
        <button type="button" class="button" disabled={isEmpty} onClick={forgetConversation}>
          New chat
        </button>
      </div>
      <SettingsForm settings={settings} />
      {isEmpty ? (
        <p class="quiet chat-empty">
          Ask the model something. The conversation is kept in this tab alone, and forgotten when the page is loaded
          again.
        </p>
      ) : (
        <Turns conversation={conversation} />
      )}
      <Composer isRunning={isRunning} refusal={refusal} />
    </section>
  );
}

function Turns({ conversation }: { conversation: PageConversation }): JSX.Element {
  useFollowedEnd(conversation);
  return (
    <ol class="turns" aria-label="Conversation">
      {conversation.turns.map((turn) =>
        turn.kind === 'question' ? (
          <QuestionTurn key={turn.id} question={turn} />
        ) : (
          <AnswerTurn key={turn.id} answer={turn} question={questionOf(conversation, turn.id)} />
        ),
      )}
    </ol>
  );
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
